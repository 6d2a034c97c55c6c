//! What is wrong with the configuration, and where.

use std::fmt;
use std::path::PathBuf;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, MietteError,
    MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents,
};

/// How far a problem reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used: no start, and a running kernel keeps what it has.
    Fatal,
    /// One server cannot be used; the others are not touched.
    Server,
    /// Worth knowing; nothing is stopped by it.
    Warning,
}

/// One thing that is wrong. Never holds the value of a key: values may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How serious it is.
    pub(crate) severity: Severity,
    /// In which file.
    pub file: PathBuf,
    /// Where in the file; `None` when it is about the file as a whole.
    pub(crate) location: Option<Box<Location>>,
    /// What is wrong, in one line.
    pub message: String,
    /// The known key that was probably meant.
    pub(crate) nearest: Option<String>,
}

/// A stretch of one line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// How many characters it is about, within its line.
    pub(crate) width: usize,
    /// The line with its values made unreadable.
    pub(crate) excerpt: String,
}

impl Problem {
    /// For a person at a terminal: several lines with a picture of the location.
    #[must_use]
    pub(crate) fn render_report(&self, theme: GraphicalTheme) -> String {
        let mut out = String::new();
        GraphicalReportHandler::new_themed(theme)
            .with_context_lines(0)
            .render_report(&mut out, self.to_report().as_ref())
            .expect("a string takes any text");
        out
    }

    /// [`fancy`](Self::render_report) for a terminal, with colours unless `NO_COLOR` is set; else one plain
    /// line.
    #[must_use]
    pub fn render(&self, terminal: bool) -> String {
        match (terminal, std::env::var_os("NO_COLOR")) {
            (false, _) => self.to_string(),
            (true, None) => self.render_report(GraphicalTheme::unicode()),
            (true, Some(_)) => self.render_report(GraphicalTheme::unicode_nocolor()),
        }
    }

    fn to_report(&self) -> Report {
        let message = match self.location {
            Some(_) => self.message.clone(),
            None => self.to_string(),
        };
        let mut report = MietteDiagnostic::new(message).with_severity(match self.severity {
            Severity::Fatal | Severity::Server => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        });
        if let Some(nearest) = &self.nearest {
            report = report.with_help(format!("did you mean `{nearest}`?"));
        }
        let Some(location) = &self.location else {
            return report.into();
        };
        let line = ExcerptLine {
            file: self.file.display().to_string(),
            location: Location::clone(location),
        };
        Report::new(report.with_label(location.to_labeled_span())).with_source_code(line)
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
    fn to_labeled_span(&self) -> LabeledSpan {
        let bytes = |from: &str, chars: usize| from.chars().take(chars).map(char::len_utf8).sum();
        let start: usize = bytes(&self.excerpt, self.column - 1);
        let width: usize = bytes(&self.excerpt[start..], self.width);
        LabeledSpan::new(Some("here".into()), start, width)
    }
}

/// The one line that is drawn: all that is kept of the file.
#[derive(Debug)]
struct ExcerptLine {
    file: String,
    location: Location,
}

impl SourceCode for ExcerptLine {
    fn read_span<'a>(
        &'a self,
        _span: &SourceSpan,
        _before: usize,
        _after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let Location {
            line,
            column,
            excerpt,
            ..
        } = &self.location;
        let (name, whole) = (self.file.clone(), SourceSpan::from(0..excerpt.len()));
        Ok(Box::new(MietteSpanContents::new_named(
            name,
            excerpt.as_bytes(),
            whole,
            line - 1,
            column - 1,
            1,
        )))
    }
}
