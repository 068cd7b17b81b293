"""Folding of changes to what one write needs: DataFrame in, DataFrame out."""
