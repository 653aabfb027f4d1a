"""What tools/build_hardware.py is made of: readers of measured tables, plausibility, fits, schema."""
