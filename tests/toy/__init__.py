"""What tests of several rooms share: a toy task, small models, our commands on them."""
