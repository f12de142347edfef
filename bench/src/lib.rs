//! Measurements of libmp beside other communication libraries.
