//! The table for humans.

use std::fmt::{self, Display, Formatter};

use crate::findings::{Criterion, Findings, points};

/// Prints findings as text.
pub struct Table<'a>(pub &'a Findings);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let findings = self.0;
        writeln!(f)?;
        heading(f, findings)?;
        hops(f, findings)?;
        ends(f, findings)?;
        cores(f, findings)?;
        modes(f, findings)?;
        criteria(f, findings)
    }
}

fn heading(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    let kind = if findings.burst > 1.0 {
        format!("in bursts of {} packets on average", findings.burst)
    } else {
        "independently".to_owned()
    };
    let line: Vec<String> = (0..=findings.hops).map(|host| format!("h{host}")).collect();
    writeln!(f, "  {}", line.join(" ~~x~~ "))?;
    writeln!(
        f,
        "  source h0, sink h{}; each of the {} links (~~x~~) carries {} Mbit/s and drops {} %\n  \
         of the packets, {kind}{}. {}, field of order {}.\n",
        findings.hops,
        findings.hops,
        findings.rate_mbit,
        points(findings.loss),
        time(findings),
        protection(findings),
        findings.field
    )
}

/// Delay, jitter and reordering in words, where there are any.
fn time(findings: &Findings) -> String {
    let Findings { delay_ms, jitter_ms, reorder, .. } = findings;
    let mut words = Vec::new();
    if *delay_ms > 0.0 {
        words.push(format!("{delay_ms} ms of delay"));
    }
    if *jitter_ms > 0.0 {
        words.push(format!("up to {jitter_ms} ms of jitter"));
    }
    if *reorder > 0.0 {
        words.push(format!("{} % late by 3 ms", points(*reorder)));
    }
    if words.is_empty() { String::new() } else { format!(", with {}", words.join(", ")) }
}

/// The code in words.
pub fn protection(findings: &Findings) -> String {
    let (size, block) = (findings.batch, findings.block.unwrap_or_default());
    match (findings.code, findings.adaptive) {
        ("bats", Some(true)) => format!("BATS blocks of {block} in adaptive batches of {size}"),
        ("bats", _) => format!("BATS blocks of {block} in batches of {size}"),
        ("stream", _) if findings.is_automatic => "A stream (code auto)".into(),
        ("stream", _) => "A stream that every hop keeps whole".into(),
        _ => format!("Generations of {size} symbols"),
    }
}

fn hops(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    let sending = match findings.code {
        "stream" => "hop repairs its own losses",
        _ => "host sends one packet per symbol",
    };
    writeln!(f, "  What is left after each hop, when every {sending}:\n")?;
    let kind = match findings.code {
        "stream" => "  stream",
        _ => "recoding",
    };
    writeln!(f, "  hop   link dropped   forwarding   {kind}   {kind}   ")?;
    writeln!(f, "                        (theory)    (theory)   measured   ")?;
    let rows = findings.recoded.rank_theory.iter().zip(&findings.recoded.rank_ratio);
    for (index, (theory, measured)) in rows.enumerate() {
        let dropped = findings.links.get(index).map_or(0.0, |link| link.loss * 100.0);
        let forwarding = (1.0 - findings.loss).powi(index as i32 + 1);
        writeln!(
            f,
            "  {:>3}   {dropped:>10.2} %   {forwarding:>10.4}   {theory:>8.4}   {measured:>8.4}",
            index + 1
        )?;
    }
    writeln!(
        f,
        "\n  Ideal retransmission on every hop would keep {:.4}, at a round trip per loss per hop.\n",
        1.0 - findings.loss
    )
}

fn ends(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    let (plain, recoded) = (&findings.plain, &findings.recoded);
    let mut row = |what: &str, left: String, right: String| {
        writeln!(f, "  {what:<26} {left:>24} {right:>24}")
    };
    let kind = match findings.code {
        "stream" => "stream",
        _ => "recoded",
    };
    row("from end to end", "Linux forwarding".into(), kind.into())?;
    row(
        "UDP packets delivered",
        format!("{:.2} %", plain.delivered * 100.0),
        format!("{:.4} %", recoded.delivered * 100.0),
    )?;
    row("  in theory", format!("{:.2} %", plain.theory * 100.0), "all but 0.01 %".into())?;
    row(
        "  lost for good",
        format!("{:.1e}", 1.0 - plain.delivered),
        format!("{:.1e}", recoded.residual_loss),
    )?;
    row("  found a full queue", plain.overflows.to_string(), recoded.overflows.to_string())?;
    row(
        "TCP download",
        format!("{:.3} Mbit/s", plain.tcp_mbps),
        format!("{:.1} Mbit/s", recoded.tcp_mbps),
    )?;
    row(
        "  with BBR",
        plain.tcp_bbr_mbps.map_or("not available".into(), |mbit| format!("{mbit:.3} Mbit/s")),
        String::new(),
    )?;
    row(
        "  brought",
        format!("{:.2} MB", plain.tcp_bytes as f64 / 1e6),
        format!("{:.1} MB in {:.1} s", recoded.tcp_bytes as f64 / 1e6, recoded.tcp_seconds),
    )?;
    let hash = match (recoded.tcp_complete, recoded.sha256_ok) {
        (false, _) => "cut off",
        (true, true) => "SHA-256 right",
        (true, false) => "SHA-256 WRONG",
    };
    let end = if plain.tcp_complete { "whole" } else { "cut off" };
    row("  file", end.into(), hash.into())?;
    row("packets per source symbol", "1".into(), format!("{:.3}", recoded.overhead))?;
    row("  during the download", String::new(), format!("{:.3}", recoded.tcp_overhead))?;
    if let Some(theory) = recoded.overhead_theory {
        row("  in theory", String::new(), format!("{theory:.3}"))?;
    }
    if let Some((mean, max)) = recoded.decode_delay_mean_ms.zip(recoded.decode_delay_max_ms) {
        row("time to decode, at most", String::new(), format!("{mean:.1} ms, {max:.0} ms"))?;
    }
    writeln!(f)
}

fn cores(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    let recoded = &findings.recoded;
    let shares = recoded.core_shares.iter().enumerate();
    let listed: Vec<String> =
        shares.map(|(host, share)| format!("h{host} {:.0} %", share * 100.0)).collect();
    writeln!(
        f,
        "  of a core, with {:.0} Mbit/s of UDP: {} (field arithmetic by {})",
        recoded.offered_mbit,
        listed.join(", "),
        recoded.kernel
    )
}

fn modes(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    let mut kinds: Vec<(String, &str, Vec<String>)> = Vec::new();
    for mode in &findings.modes {
        let kind = format!("XDP {}, AF_XDP {}", mode.xdp, mode.socket);
        let place = format!("{}:{}", mode.host, mode.interface);
        match kinds.iter_mut().find(|(known, _, _)| *known == kind) {
            Some((_, _, places)) => places.push(place),
            None => kinds.push((kind, &mode.reason, vec![place])),
        }
    }
    for (kind, reason, places) in kinds {
        writeln!(f, "  {kind} on {}", places.join(" "))?;
        if !reason.is_empty() {
            writeln!(f, "    fallback reason: {reason}")?;
        }
    }
    for (host, reasons) in &findings.drops {
        let listed: Vec<String> = reasons
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        if !listed.is_empty() {
            writeln!(f, "  dropped by {host}: {}", listed.join(", "))?;
        }
    }
    writeln!(f)
}

fn criteria(f: &mut Formatter<'_>, findings: &Findings) -> fmt::Result {
    write!(f, "{}", verdict(&findings.criteria))
}

/// The criteria as text, and the verdict over all.
pub fn verdict(criteria: &[Criterion]) -> String {
    let mut text = String::new();
    for Criterion { rule, found, holds, waived } in criteria {
        let word = match (holds, waived) {
            (true, _) => "pass",
            (false, None) => "FAIL",
            (false, Some(_)) => " -- ",
        };
        text += &format!("  {word}  {rule}: {found}\n");
        if let (false, Some(reason)) = (holds, waived) {
            text += &format!("        not judged: {reason}\n");
        }
    }
    let open = criteria.iter().filter(|it| !it.holds && it.waived.is_some()).count();
    let open = match open {
        0 => String::new(),
        _ => format!(" ({open} of {} not judged)", criteria.len()),
    };
    text + &format!("\n  ok: {}{open}\n", criteria.iter().all(Criterion::is_met))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_names_the_reason_of_a_waived_criterion_and_counts_it() {
        let criterion = |holds, waived: Option<&str>| Criterion {
            rule: "fast".into(),
            found: "1".into(),
            holds,
            waived: waived.map(str::to_owned),
        };
        let busy = Some("this machine was busy");
        assert_eq!(
            verdict(&[criterion(true, busy), criterion(false, busy)]),
            "  pass  fast: 1\n   --   fast: 1\n        not judged: this machine was busy\n\n  \
             ok: true (1 of 2 not judged)\n"
        );
        assert_eq!(verdict(&[criterion(false, None)]), "  FAIL  fast: 1\n\n  ok: false\n");
    }
}
