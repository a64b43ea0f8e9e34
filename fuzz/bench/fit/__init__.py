"""What timings say of the cost model of products: kept, learned, checked on shapes left out."""
