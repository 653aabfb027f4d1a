"""YAML as text: spans, YAML 1.1 values, comments, edits and diffs. Knows nothing about training."""
