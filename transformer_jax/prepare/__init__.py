"""From raw text to the folder of a prepared corpus (section 5.1)."""
