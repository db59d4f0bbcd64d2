"""Tables, pictures and pages of runs, with the paper's numbers beside ours."""
