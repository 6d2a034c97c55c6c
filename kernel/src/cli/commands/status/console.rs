//! `mgp console`: opens the console in a browser, or signs all browsers out.

use std::env;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use mgp_platform::desktop::SCREEN_VARIABLES;
use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::kernel::console::{ConsoleLink, End, EndResult, Link};
use mgp_protocol::mgp::kernel::{KernelStatus, Status};
use mgp_store::atomic_file;
use serde_json::json;

use crate::cli::args::OpenConsole;
use crate::cli::client::{CliContext, parse_result};
use crate::cli::commands::servers::login;
use crate::cli::failure::Failure;
use crate::cli::print::{print_error, print_line};
use crate::cli::text_format::sanitize_line;

const PROGRESS_TITLE: &str = "asking the kernel";

pub(in crate::cli::commands) fn open_console(
    context: &CliContext,
    typed: &OpenConsole,
) -> Result<(), Failure> {
    if typed.sign_out {
        let answer = context.call(End::METHOD, &json!({}), PROGRESS_TITLE)?;
        return context.print_answer(&answer, |ended: EndResult| match ended.browsers {
            0 => print_line("no browser was signed in"),
            1 => print_line("signed 1 browser out"),
            browsers => print_line(format_args!("signed {browsers} browsers out")),
        });
    }
    let answer = context.call(Link::METHOD, &json!({}), PROGRESS_TITLE)?;
    context.print_answer(&answer, |link: ConsoleLink| {
        if typed.print || !io::stdout().is_terminal() || !has_screen() {
            print_line(sanitize_line(&link.url))?;
            print_error(format_args!(
                "good once, for {} s: whoever opens it first is the operator",
                link.lasts_secs
            ));
            return Ok(());
        }
        let page = write_redirect_page(context, &link)?;
        login::open_browser(&page.display().to_string());
        print_line(
            "opening your browser; if no console appears, `mgp console --print` shows the link",
        )
    })
}

/// Whether a browser can be displayed here.
fn has_screen() -> bool {
    let set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    SCREEN_VARIABLES.is_empty() || SCREEN_VARIABLES.iter().any(set)
}

/// A page that redirects to the link. Every user of the machine can read the command lines of all programs, including
/// the browser's; this page is readable only by its owner.
fn write_redirect_page(context: &CliContext, link: &ConsoleLink) -> Result<PathBuf, Failure> {
    let status: KernelStatus =
        parse_result(&context.call(Status::METHOD, &json!({}), PROGRESS_TITLE)?)?;
    let page = Path::new(&status.data_dir).join("console.html");
    atomic_file::write(&page, redirect_html(&link.url).as_bytes())?;
    Ok(page)
}

/// The URL has no HTML metacharacters: scheme, digits, letters, `-` and `_`.
fn redirect_html(url: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>mgp</title>\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">\n\
         <p><a href=\"{url}\">Open the console</a>. The link is good once, for a minute.</p>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decision 0067.
    #[test]
    fn the_page_redirects_to_the_link_privately() {
        let page = redirect_html("http://127.0.0.1:7332/#a-B_9");
        assert!(page.contains("content=\"0;url=http://127.0.0.1:7332/#a-B_9\""));
        assert!(page.contains("no-referrer"));
    }
}
