"""The Kernel IR: what every thread of a CTA does, with every synchronisation spelled out."""
