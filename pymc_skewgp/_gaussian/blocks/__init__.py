"""Many rows of few coordinates, in blocks: no array is of rows times rows, or times draws."""
