"""What a student keeps, and the model built from it.

`parts` are the files in work/parts; `keep` writes one with the text that `extract` takes out of a notebook; `build` puts
them into a model by `adapters`; `progress` shows them.
"""
