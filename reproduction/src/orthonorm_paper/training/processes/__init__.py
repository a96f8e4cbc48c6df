"""The processes that train one run together: their start, what they tell each other, weights divided among them."""
