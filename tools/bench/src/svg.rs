//! Growth curves as small SVG files: both axes logarithmic, one line per series.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// A palette that colour-blind people can distinguish.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A line: its name and its points, all greater than zero.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The enclosing powers of ten.
fn decades(values: impl Iterator<Item = f64>) -> (i32, i32) {
    let (mut low, mut high) = (f64::MAX, f64::MIN_POSITIVE);
    for v in values.filter(|v| *v > 0.0) {
        (low, high) = (low.min(v), high.max(v));
    }
    if low > high {
        return (0, 1);
    }
    let (low, high) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (low, high.max(low + 1))
}

fn tick(power: i32) -> String {
    match power {
        p if p >= 6 => format!("{}M", 10f64.powi(p - 6)),
        p if p >= 3 => format!("{}k", 10f64.powi(p - 3)),
        p => format!("{}", 10f64.powi(p)),
    }
}

/// The chart as an SVG document.
pub fn chart(title: &str, x_axis: &str, y_axis: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|l| &l.points);
    let (x0, x1) = decades(all().map(|p| p.0));
    let (y0, y1) = decades(all().map(|p| p.1));
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let x = |v: f64| LEFT + (v.log10() - f64::from(x0)) / f64::from(x1 - x0) * (right - LEFT);
    let y = |v: f64| bottom - (v.log10() - f64::from(y0)) / f64::from(y1 - y0) * (bottom - TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    let mut put = |text: std::fmt::Arguments<'_>| {
        // Writing to a String does not fail.
        let _ = out.write_fmt(text);
    };
    for power in x0..=x1 {
        let at = x(10f64.powi(power));
        put(format_args!(
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>\n",
            bottom + 18.0,
            tick(power)
        ));
    }
    for power in y0..=y1 {
        let at = y(10f64.powi(power));
        put(format_args!(
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>\n",
            LEFT - 8.0,
            at + 4.0,
            tick(power)
        ));
    }
    put(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
        f64::midpoint(LEFT, right),
        HEIGHT - 14.0,
        escaped(x_axis),
        f64::midpoint(TOP, bottom),
        escaped(y_axis)
    ));
    for (i, line) in lines.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let points: Vec<String> = line
            .points
            .iter()
            .filter(|p| p.0 > 0.0 && p.1 > 0.0)
            .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
            .collect();
        put(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n",
            points.join(" ")
        ));
        for point in &points {
            let (cx, cy) = point.split_once(',').unwrap_or((point, "0"));
            put(format_args!(
                "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3\" fill=\"{colour}\"/>\n"
            ));
        }
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>\n",
            right + 12.0,
            TOP + 16.0 + 18.0 * i as f64,
            escaped(&line.name)
        ));
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_between_whole_powers_of_ten() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.into(),
            points: points.to_vec(),
        };
        let svg = chart(
            "a < b",
            "objects",
            "µs",
            &[
                line("LIST", &[(1e3, 5.0), (1e5, 500.0)]),
                line("nothing", &[(1e3, 0.0)]),
            ],
        );
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        assert!(svg.contains(">1k</text>") && svg.contains(">100k</text>"));
        assert_eq!(
            svg.matches("<circle").count(),
            2,
            "zero is nowhere on a logarithmic axis"
        );
        assert_eq!(tick(-2), "0.01");
    }
}
