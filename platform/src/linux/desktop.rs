//! The desktop of the user (freedesktop.org): Desktop Notifications Specification 1.2 on the session bus.

use std::collections::HashMap;
use std::time::Duration;

use dbus::arg::{RefArg, Variant};
use dbus::blocking::Connection;

/// The program that opens a URL in the user's browser.
pub const OPENER: &str = "xdg-open";
/// Variables of which one is set in a session with a screen; none if every session has one.
pub const SCREEN_VARIABLES: &[&str] = &["DISPLAY", "WAYLAND_DISPLAY"];
/// Whether programs keep their settings in `~/Library`.
pub const HAS_LIBRARY_FOLDER: bool = false;

const SERVICE: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
/// How long the desktop shows it: as it is configured.
const DEFAULT_EXPIRY: i32 = -1;

/// Shows a notification. Blocks until the desktop has taken it.
///
/// # Errors
/// There is no desktop, or it does not answer in time.
pub fn show(title: &str, text: &str, timeout: Duration) -> Result<(), String> {
    let bus = Connection::new_session()
        .map_err(|e| format!("there is no session bus: {}", describe(&e)))?;
    let hints: HashMap<&str, Variant<Box<dyn RefArg>>> = HashMap::new();
    let (replaced, icon, actions): (u32, &str, Vec<&str>) = (0, "", Vec::new());
    let shown: Result<(u32,), dbus::Error> = bus.with_proxy(SERVICE, PATH, timeout).method_call(
        SERVICE,
        "Notify",
        (
            "mgp",
            replaced,
            icon,
            title,
            escape_markup(text),
            actions,
            hints,
            DEFAULT_EXPIRY,
        ),
    );
    shown
        .map(drop)
        .map_err(|e| format!("the desktop did not take it: {}", describe(&e)))
}

fn describe(error: &dbus::Error) -> &str {
    error
        .message()
        .or_else(|| error.name())
        .unwrap_or("unknown")
}

/// The text may contain words of servers, and a body may have markup.
fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
