"""What instructors and CI use: the built notebooks, the site, the slides, the lab, the doctor."""
