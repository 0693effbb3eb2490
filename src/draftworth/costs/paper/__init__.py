"""The on-paper curve of T: from a model's config.json and a GPU's data sheet, when there is no server."""
