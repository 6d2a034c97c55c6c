//! What one era says, said in the words of the other: params, results, errors and questions.
//!
//! Each conversion takes JSON text and gives JSON text; what it does not have to change stays as it
//! was to the byte. A text that is not of the expected form passes unchanged: whoever reads it says
//! what is wrong with it.

mod errors;

pub use errors::error_for;
