"""Run directories -> the paper's tables, with the paper's numbers beside ours."""
