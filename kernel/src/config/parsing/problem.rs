//! Problems of the configuration, and their locations.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The file is invalid: no start, and a running kernel keeps its configuration.
    Fatal,
    /// One server is invalid; the others are not affected.
    Server,
    /// A warning without an effect.
    Warning,
}

/// A problem. Never contains the value of a key: values may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    /// The file.
    pub(crate) file: PathBuf,
    /// The location in the file; `None` if it concerns the whole file.
    pub(crate) location: Option<Box<Location>>,
    /// The problem in one line.
    pub(crate) message: String,
    /// The known key that was probably meant.
    pub(crate) nearest: Option<String>,
}

/// A range in one line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// From 1.
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// Its length in characters, within its line.
    pub(crate) width: usize,
    /// The line with its values masked.
    pub(crate) excerpt: String,
}

impl Problem {
    /// For a terminal: several lines that show the location in its line.
    #[must_use]
    pub(crate) fn render_report(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Fatal | Severity::Server => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let help = self.nearest.as_ref();
        let help = help.map(|nearest| Level::HELP.message(format!("did you mean `{nearest}`?")));
        let Some(location) = &self.location else {
            let message = format!("{}: {}", self.file.display(), self.message);
            let report = level.primary_title(message).elements(help);
            return format!("{}\n", renderer.render(&[report]));
        };
        let file = self.file.display().to_string();
        let snippet = Snippet::source(&location.excerpt)
            .line_start(location.line)
            .path(file)
            .annotation(AnnotationKind::Primary.span(location.byte_range()));
        let report = level.primary_title(&self.message).element(snippet);
        format!("{}\n", renderer.render(&[report.elements(help)]))
    }

    /// As [`Self::render_report`] for a terminal, with colours unless `NO_COLOR` is set; else one plain line.
    #[must_use]
    pub(crate) fn render(&self, terminal: bool) -> String {
        match (terminal, std::env::var_os("NO_COLOR")) {
            (false, _) => self.to_string(),
            (true, None) => self.render_report(&Renderer::styled()),
            (true, Some(_)) => self.render_report(&Renderer::plain()),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(location) = &self.location {
            write!(f, "{}:{}:", location.line, location.column)?;
        }
        write!(f, " {}", self.message)?;
        match &self.nearest {
            Some(nearest) => write!(f, ", did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

impl Location {
    /// Where it is in the excerpt.
    fn byte_range(&self) -> Range<usize> {
        let bytes = |from: &str, chars: usize| from.chars().take(chars).map(char::len_utf8).sum();
        let start: usize = bytes(&self.excerpt, self.column - 1);
        let width: usize = bytes(&self.excerpt[start..], self.width);
        start..start + width
    }
}
