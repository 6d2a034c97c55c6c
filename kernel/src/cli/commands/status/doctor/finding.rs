//! The result of a check.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The severity; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FindingLevel {
    /// Something does not work, or is open to others.
    Broken,
    /// It works, but may soon not, or not for everybody.
    Warning,
    Ok,
}

impl FindingLevel {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Warning => "warning",
            Self::Ok => "good",
        }
    }
}

/// A fix that removes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Set these permissions of a file or folder.
    Mode(PathBuf, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: FindingLevel,
    /// The checked area, in one word.
    check: &'static str,
    message: String,
    /// A command to type.
    command: Option<String>,
    remedy: Option<Remedy>,
    /// The result of `--fix`.
    fix_result: Option<String>,
}

impl Finding {
    fn new(level: FindingLevel, check: &'static str, description: impl Into<String>) -> Self {
        Self {
            level,
            check,
            message: description.into(),
            command: None,
            remedy: None,
            fix_result: None,
        }
    }

    pub(super) fn broken(area: &'static str, description: impl Into<String>) -> Self {
        Self::new(FindingLevel::Broken, area, description)
    }

    pub(super) fn warning(area: &'static str, description: impl Into<String>) -> Self {
        Self::new(FindingLevel::Warning, area, description)
    }

    pub(super) fn good(area: &'static str, description: impl Into<String>) -> Self {
        Self::new(FindingLevel::Ok, area, description)
    }

    pub(super) fn with_command(self, command: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            ..self
        }
    }

    pub(super) fn with_remedy(self, remedy: Remedy) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }

    /// Applies the remedy, if there is one.
    pub(super) fn fix(&mut self) {
        let Some(Remedy::Mode(path, mode)) = &self.remedy else {
            return;
        };
        match fs::set_permissions(path, Permissions::from_mode(*mode)) {
            Ok(()) => {
                self.fix_result = Some(format!("mended: it has mode {mode:o} now"));
                self.level = FindingLevel::Ok;
            }
            Err(e) => self.fix_result = Some(format!("could not be mended: {e}")),
        }
    }

    /// On one line.
    pub(super) fn render(&self) -> String {
        let description = self.message.replace('\n', " ");
        let mut text = format!("{}: {description}", self.check);
        match (&self.fix_result, &self.command) {
            (Some(done), _) => text += &format!(" ({done})"),
            (None, Some(command)) => text += &format!(" → {command}"),
            (None, None) => {}
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "condition": self.level.label(), "area": self.check, "told": self.message,
            "command": self.command, "fixable": self.remedy.is_some(), "done": self.fix_result,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_finding_is_reported_as_ok() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "x").unwrap();
        let mut finding = Finding::broken("files", "token is open\nto others")
            .with_command("chmod 600 token")
            .with_remedy(Remedy::Mode(file.clone(), 0o600));
        assert_eq!(
            finding.render(),
            "files: token is open to others → chmod 600 token"
        );
        finding.fix();
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(finding.render().ends_with("(mended: it has mode 600 now)"));
        assert_eq!(finding.level, FindingLevel::Ok);
        let mut gone =
            Finding::broken("files", "x").with_remedy(Remedy::Mode("/nowhere/x".into(), 0o600));
        gone.fix();
        assert_eq!(gone.level, FindingLevel::Broken);
        assert!(gone.render().contains("could not be mended"));
    }
}
