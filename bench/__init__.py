"""What takes longer than a test: accuracy and speed, as tables in bench/results/."""
