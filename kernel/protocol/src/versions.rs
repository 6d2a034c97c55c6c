//! Conversions between the legacy and the stateless protocol: params, results, errors and callbacks.
//!
//! Each conversion takes and returns JSON text; values that need no change stay byte-identical. A malformed
//! text is returned unchanged: its reader reports the error.

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
