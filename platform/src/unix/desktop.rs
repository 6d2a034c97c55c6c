//! The desktop of the user. Notifications are known here for D-Bus only.

use std::time::Duration;

const IS_MACOS: bool = cfg!(target_os = "macos");

/// The program that opens a URL in the user's browser.
pub const OPENER: &str = if IS_MACOS { "open" } else { "xdg-open" };
/// Variables of which one is set in a session with a screen; none if every session has one.
pub const SCREEN_VARIABLES: &[&str] = if IS_MACOS {
    &[]
} else {
    &["DISPLAY", "WAYLAND_DISPLAY"]
};
/// Whether programs keep their settings in `~/Library`.
pub const HAS_LIBRARY_FOLDER: bool = IS_MACOS;

/// Shows no notification.
///
/// # Errors
/// Always.
pub fn show(_title: &str, _text: &str, _timeout: Duration) -> Result<(), String> {
    Err(
        "this system's notifications are not known here: use `command` or `webhook` in [notify]"
            .into(),
    )
}
