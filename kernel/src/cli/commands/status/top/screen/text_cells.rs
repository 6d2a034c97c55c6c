//! Writes text into cells, truncated with `…` if it does not fit.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

/// The width of a text in cells.
pub(super) fn display_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Writes a text left-aligned, without invisible characters.
pub(super) fn draw_left(buffer: &mut Buffer, line: Rect, text: &str, style: Style) {
    let room = usize::from(line.width);
    if room == 0 || line.height == 0 {
        return;
    }
    if display_width(text) <= room {
        buffer.set_stringn(line.x, line.y, text, room, style);
        return;
    }
    let (x, y) = buffer.set_stringn(line.x, line.y, text, room - 1, style);
    buffer.set_stringn(x, y, "…", 1, style);
}

/// Writes a text right-aligned.
pub(super) fn draw_right(buffer: &mut Buffer, line: Rect, text: &str, style: Style) {
    let free = usize::from(line.width).saturating_sub(display_width(text));
    let free = u16::try_from(free).unwrap_or(line.width);
    draw_left(buffer, skip_cells(line, free), text, style);
}

/// A line without its first cells.
pub(super) fn skip_cells(line: Rect, cells: u16) -> Rect {
    let cells = cells.min(line.width);
    Rect {
        x: line.x + cells,
        width: line.width - cells,
        ..line
    }
}

/// The first cells of a line.
pub(super) fn take_cells(line: Rect, cells: u16) -> Rect {
    Rect {
        width: cells.min(line.width),
        ..line
    }
}

/// Wraps a text into lines of this width.
pub(super) fn wrap(text: &str, cells: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        let wide = display_width(c.encode_utf8(&mut [0; 4]));
        if used + wide > cells.max(1) {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        line.push(c);
        used += wide;
    }
    lines.push(line);
    lines
}

/// The first visible row, if `fit` rows fit and the selected one must be visible.
pub(super) fn first_visible_row(marked: usize, rows: usize, fit: usize) -> usize {
    let most = rows.saturating_sub(fit);
    marked.saturating_sub(fit / 2).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, cells: u16, right: bool) -> String {
        let area = Rect::new(0, 0, 12, 1);
        let mut buffer = Buffer::empty(area);
        let write = if right { draw_right } else { draw_left };
        write(&mut buffer, take_cells(area, cells), text, Style::new());
        let cells = buffer.content().iter().map(ratatui::buffer::Cell::symbol);
        cells.collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn a_text_is_truncated_to_its_cells() {
        assert_eq!(line("abcdef", 6, false), "abcdef");
        assert_eq!(line("abcdefg", 6, false), "abcde…");
        assert_eq!(
            line("漢字漢字", 6, false),
            "漢 字 …",
            "a wide sign has two cells"
        );
        assert_eq!(line("12", 6, true), "    12");
        assert_eq!(line("1234567", 6, true), "12345…");
        assert_eq!(line("abc", 0, false), "");
        assert!(!line("a\u{1b}[2Jb\u{7}", 12, false).contains(['\u{1b}', '\u{7}']));
    }

    #[test]
    fn a_long_text_is_wrapped() {
        assert_eq!(wrap("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(wrap("漢字x", 3), ["漢", "字x"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(wrap("abc", 0), ["a", "b", "c"]);
    }

    #[test]
    fn the_selected_row_is_always_visible() {
        for rows in 0..30 {
            for fit in 1..12 {
                for marked in 0..rows {
                    let first = first_visible_row(marked, rows, fit);
                    assert!(
                        first <= marked && marked < first + fit,
                        "{marked} of {rows} in {fit}"
                    );
                    assert!(first == 0 || first + fit <= rows);
                }
            }
        }
    }
}
