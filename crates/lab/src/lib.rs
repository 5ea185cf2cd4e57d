//! Load generator, scenarios and reports: measures strangers and us with the same code.
