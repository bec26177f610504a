"""A trained model that runs in a web page: its weights as data, and the scripts that compute with
them.
"""
