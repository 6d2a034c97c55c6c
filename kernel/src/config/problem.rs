//! What is wrong with the configuration, and where.

use std::fmt;
use std::path::PathBuf;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents,
};

/// How far a problem reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The file cannot be used: no start, and a running kernel keeps what it has.
    Fatal,
    /// One server cannot be used; the others are not touched.
    Entry,
    /// Worth knowing; nothing is stopped by it.
    Warning,
}

/// One thing that is wrong. Never holds the value of a key: values may be secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How far it reaches.
    pub weight: Weight,
    /// In which file.
    pub file: PathBuf,
    /// Where in the file; `None` when it is about the file as a whole.
    pub place: Option<Box<Place>>,
    /// What is wrong, in one line.
    pub message: String,
    /// The known key that was probably meant.
    pub nearest: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// How many characters it is about, within its line.
    pub width: usize,
    /// The line with its values made unreadable.
    pub excerpt: String,
}

impl Problem {
    /// For a person at a terminal: several lines with a picture of the place.
    #[must_use]
    pub fn fancy(&self, theme: GraphicalTheme) -> String {
        let mut out = String::new();
        GraphicalReportHandler::new_themed(theme)
            .with_context_lines(0)
            .render_report(&mut out, &Picture::of(self))
            .expect("a string takes any text");
        out
    }

    /// [`fancy`](Self::fancy) for a terminal, with colours unless `NO_COLOR` is set; else one plain
    /// line.
    #[must_use]
    pub fn render(&self, terminal: bool) -> String {
        match (terminal, std::env::var_os("NO_COLOR")) {
            (false, _) => self.to_string(),
            (true, None) => self.fancy(GraphicalTheme::unicode()),
            (true, Some(_)) => self.fancy(GraphicalTheme::unicode_nocolor()),
        }
    }

    fn sentence(&self) -> String {
        match &self.nearest {
            Some(nearest) => format!("{}, did you mean `{nearest}`?", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(place) = &self.place {
            write!(f, "{}:{}:", place.line, place.column)?;
        }
        write!(f, " {}", self.sentence())
    }
}

impl std::error::Error for Problem {}

/// A problem as miette draws it.
#[derive(Debug)]
struct Picture<'p> {
    problem: &'p Problem,
    line: Option<Line<'p>>,
}

/// The one line that is drawn.
#[derive(Debug)]
struct Line<'p> {
    file: String,
    place: &'p Place,
}

impl<'p> Picture<'p> {
    fn of(problem: &'p Problem) -> Self {
        let line = problem.place.as_deref().map(|place| Line {
            file: problem.file.display().to_string(),
            place,
        });
        Self { problem, line }
    }
}

impl SourceCode for Line<'_> {
    fn read_span<'a>(
        &'a self,
        _span: &SourceSpan,
        _before: usize,
        _after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (place, whole) = (self.place, SourceSpan::from(0..self.place.excerpt.len()));
        let (text, line, column) = (place.excerpt.as_bytes(), place.line - 1, place.column - 1);
        let name = self.file.clone();
        Ok(Box::new(MietteSpanContents::new_named(
            name, text, whole, line, column, 1,
        )))
    }
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem.place {
            Some(_) => f.write_str(&self.problem.message),
            None => self.problem.fmt(f),
        }
    }
}

impl std::error::Error for Picture<'_> {}

impl Diagnostic for Picture<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.problem.weight {
            Weight::Fatal | Weight::Entry => miette::Severity::Error,
            Weight::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let nearest = self.problem.nearest.as_ref()?;
        Some(Box::new(format!("did you mean `{nearest}`?")))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.line.as_ref().map(|line| line as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.problem.place.as_ref()?;
        let bytes =
            |chars: &mut dyn Iterator<Item = char>| chars.map(char::len_utf8).sum::<usize>();
        let start = bytes(&mut place.excerpt.chars().take(place.column - 1));
        let marked = &mut place
            .excerpt
            .chars()
            .skip(place.column - 1)
            .take(place.width);
        let label = LabeledSpan::new(Some("here".into()), start, bytes(marked));
        Some(Box::new(std::iter::once(label)))
    }
}
