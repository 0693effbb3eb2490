"""The page of a trial: one file a section, in the order in which `SECTIONS` of `trial_page` lists them."""
