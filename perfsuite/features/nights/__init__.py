"""What many runs show together: results by month, change points, and a dashboard."""
