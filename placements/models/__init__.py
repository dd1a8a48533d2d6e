"""What models cost: operations, bytes and activation sizes of their layers, and placements made of them."""
