"""The clinic: twelve ill models. A student opens one with `patient`, measures, names the cause and
fixes it.

`patients` is the table, `run` what happens to a patient, `parts` what can be exchanged in a run,
`measurements` what can be measured, `causes` what a diagnosis chooses from, and `tree` the order of
the questions. Notebook 19.
"""
