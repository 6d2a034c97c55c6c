//! Paths in a request, said in words: `/home/ann/trip.md` tells a ranking nothing, and that a Markdown
//! document is to be read or written tells much.

/// Endings of file names and what they are, in the words that desktops show for them
/// (shared-mime-info).
const FILE_TYPES: &[(&str, &str)] = &[
    ("7z", "7-zip archive"),
    ("avi", "AVI video"),
    ("bib", "BibTeX document"),
    ("bmp", "BMP image"),
    ("c", "C source code"),
    ("cpp", "C++ source code"),
    ("cs", "C# source code"),
    ("css", "CSS stylesheet"),
    ("csv", "CSV document"),
    ("db", "database"),
    ("doc", "Word document"),
    ("docx", "Word document"),
    ("eml", "email message"),
    ("epub", "electronic book"),
    ("flac", "FLAC audio"),
    ("geojson", "GeoJSON geospatial data"),
    ("gif", "GIF image"),
    ("go", "Go source code"),
    ("gz", "Gzip archive"),
    ("htm", "HTML document"),
    ("html", "HTML document"),
    ("ics", "calendar"),
    ("ini", "configuration"),
    ("ipynb", "Jupyter notebook"),
    ("java", "Java source code"),
    ("jpeg", "JPEG image"),
    ("jpg", "JPEG image"),
    ("js", "JavaScript program"),
    ("json", "JSON document"),
    ("jsx", "JavaScript program"),
    ("kt", "Kotlin source code"),
    ("log", "application log"),
    ("md", "Markdown document"),
    ("mkv", "Matroska video"),
    ("mov", "QuickTime video"),
    ("mp3", "MP3 audio"),
    ("mp4", "MPEG-4 video"),
    ("odp", "ODP presentation"),
    ("ods", "ODS spreadsheet"),
    ("odt", "ODT document"),
    ("ogg", "Ogg audio"),
    ("pdf", "PDF document"),
    ("php", "PHP script"),
    ("png", "PNG image"),
    ("ppt", "PowerPoint presentation"),
    ("pptx", "PowerPoint presentation"),
    ("py", "Python script"),
    ("rb", "Ruby script"),
    ("rs", "Rust source code"),
    ("rtf", "RTF document"),
    ("sh", "shell script"),
    ("sql", "SQL code"),
    ("sqlite", "database"),
    ("svg", "SVG image"),
    ("tar", "Tar archive"),
    ("tex", "TeX document"),
    ("tiff", "TIFF image"),
    ("toml", "TOML document"),
    ("ts", "TypeScript program"),
    ("tsv", "TSV document"),
    ("tsx", "TypeScript program"),
    ("txt", "plain text document"),
    ("wav", "WAV audio"),
    ("webm", "WebM video"),
    ("webp", "WebP image"),
    ("xls", "Excel spreadsheet"),
    ("xlsx", "Excel spreadsheet"),
    ("xml", "XML document"),
    ("yaml", "YAML document"),
    ("yml", "YAML document"),
    ("zip", "Zip archive"),
];

/// The text with each path replaced by what lies there. Addresses of the web stay: their words tell
/// something.
pub(super) fn describe_paths(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_start_matches(|c: char| !(c.is_alphanumeric() || "/~.".contains(c)));
        let word = word.trim_end_matches(|c: char| !(c.is_alphanumeric() || c == '/'));
        match describe_path(word) {
            Some(kind) => out.push_str(&piece.replacen(word, &kind, 1)),
            None => out.push_str(piece),
        }
    }
    out
}

/// `a.md` and `/tmp/x`, not `and/or`, `e.g.` or `https://example.com/a.md`.
fn describe_path(word: &str) -> Option<String> {
    if word.contains("://") || word.starts_with("www.") {
        return None;
    }
    let last = word.rsplit(['/', '\\']).next()?;
    let ending = last.rsplit_once('.').filter(|(stem, _)| !stem.is_empty());
    let kind = ending.and_then(|(_, ending)| {
        let ending = ending.to_ascii_lowercase();
        let at = FILE_TYPES.binary_search_by_key(&ending.as_str(), |(ending, _)| ending);
        at.ok().map(|at| FILE_TYPES[at].1)
    });
    let rooted = ["/", "~/", "./", "../"]
        .iter()
        .any(|root| word.starts_with(root));
    match kind {
        Some(kind) => Some(format!("{kind} file")),
        None => (rooted && word.len() > 2).then(|| "file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_file_type() {
        assert!(FILE_TYPES.is_sorted(), "it is searched by halves");
        for (text, words) in [
            (
                "read /home/ann/Trip.MD, please",
                "read Markdown document file, please",
            ),
            ("open 'notes.txt'.", "open 'plain text document file'."),
            ("look into ~/data", "look into file"),
            (
                "see https://example.com/a.md or www.example.com/b.md",
                "see https://example.com/a.md or www.example.com/b.md",
            ),
            ("and/or, e.g. 3.5 of .md", "and/or, e.g. 3.5 of .md"),
        ] {
            assert_eq!(describe_paths(text), words);
        }
    }
}
