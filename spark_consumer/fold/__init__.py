"""Changes folded to what one write needs: DataFrame in, DataFrame out."""
