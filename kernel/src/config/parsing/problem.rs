//! Problems of the configuration, and their locations.

use std::fmt;
use std::path::PathBuf;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, MietteError,
    MietteSpanContents, Report, SourceCode, SourceSpan, SpanContents,
};

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is invalid: no start, and a running kernel keeps its configuration.
    Fatal,
    /// One server is invalid; the others are not affected.
    Server,
    /// A warning without an effect.
    Warning,
}

/// A problem. Never contains the value of a key: values may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(crate) severity: Severity,
    /// The file.
    pub file: PathBuf,
    /// The location in the file; `None` if it concerns the whole file.
    pub(crate) location: Option<Box<Location>>,
    /// The problem in one line.
    pub message: String,
    /// The known key that was probably meant.
    pub(crate) nearest: Option<String>,
}

/// A range in one line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// Its length in characters, within its line.
    pub(crate) width: usize,
    /// The line with its values masked.
    pub(crate) excerpt: String,
}

impl Problem {
    /// For a terminal: several lines with an excerpt.
    #[must_use]
    pub(crate) fn render_report(&self, theme: GraphicalTheme) -> String {
        let mut out = String::new();
        GraphicalReportHandler::new_themed(theme)
            .with_context_lines(0)
            .render_report(&mut out, self.to_report().as_ref())
            .expect("a string takes any text");
        out
    }

    /// [`Self::render_report`] for a terminal, with colours unless `NO_COLOR` is set; else one plain line.
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

/// The line of the excerpt, as the source for the report.
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
