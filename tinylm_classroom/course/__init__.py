"""What instructors and CI use: notebooks built from their sources, the site, the lab, the doctor."""
