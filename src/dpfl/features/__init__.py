"""Features that models read instead of pixels: scattering coefficients and principal components."""
