"""Who answers: this process, Ray, Flower's simulation, SuperNodes on loopback."""
