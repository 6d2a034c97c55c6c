//! What one era says, said in the words of the other: params, results, errors and questions.
//!
//! Each conversion takes JSON text and gives JSON text; values that it does not have to change stay
//! as they were to the byte. A text that is not of the expected form passes unchanged: whoever reads
//! it says what is wrong with it.

mod callbacks;
mod content;
mod errors;
mod object;
mod params;
mod results;

pub use callbacks::{
    strip_related_call, to_legacy_callback, to_legacy_callback_result, to_stateless_callback,
    url_callbacks,
};
pub use errors::convert_error;
pub use params::{CallerMeta, to_legacy_params, to_stateless_params};
pub use results::{StatelessExtras, to_legacy_result, to_legacy_tool, to_stateless_result};
