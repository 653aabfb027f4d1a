"""What the documentation site generates: rule and hardware pages, references, and the output of shown commands."""
