"""Reports: the text of every table and figure with its claims, from records alone, and the page that holds them."""
