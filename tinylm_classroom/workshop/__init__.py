"""What a student keeps, and the model built from it.

`keep` writes the text that `extract` takes out of a notebook into a file of `parts`; `build` puts
them into a model by way of `student_modules`; `progress` shows them. Lesson 20 tests each with
`parity`, trains the model on an `own_text`, and writes a `report`.
"""
