//! Sessions with neighbours and with other ends of flows, as text.

use crate::box_names::named_box;
use crate::remark::Remark;
use crate::table::{Align, duration, table};
use recoded_api::v1::Session;

use Align::{Left, Right};

/// A line for each session, and its faults; empty if there are no keys.
pub fn session_table(sessions: &[Session]) -> String {
    if sessions.is_empty() {
        return String::new();
    }
    let head = [
        ("with", Left),
        ("public key", Left),
        ("keys", Left),
        ("handshakes", Right),
        ("refused", Right),
    ];
    let rows = sessions.iter().map(|session| {
        [
            label(session),
            session.key.clone(),
            session.age_seconds.map_or("none yet".into(), |age| {
                // Whole seconds are precise enough.
                format!("{} old", duration(age as u64))
            }),
            session.handshakes.to_string(),
            session.refused.to_string(),
        ]
    });
    let remarks = sessions.iter().filter_map(remark);
    table(head, &rows.collect::<Vec<_>>()) + &remarks.map(|it| it.text()).collect::<String>()
}

/// The other end of a session.
fn label(session: &Session) -> String {
    named_box(&session.name, &session.with)
}

/// Whether it is a grant of a source to this relay, rather than a session.
pub fn is_of_source(session: &Session) -> bool {
    session.with.starts_with("source of flow ")
}

/// Why there are no keys, and the fix; or the kind of keys that need no reply.
pub fn remark(session: &Session) -> Option<Remark> {
    if session.age_seconds.is_some() {
        let words = "keys without an answer, one-way by PSK or of a group: others every 10 s";
        return session.one_way.then(|| Remark::new(&label(session), words));
    }
    let words = match session.refusal.as_str() {
        "" if is_of_source(session) => {
            "no columns of tags came, symbols are mixed unverified: see \
               that it has this host's public key among its relay_keys"
                .to_owned()
        }
        "" if session.one_way => {
            "no keys of it came (one-way by PSK, or of a group): check that recoded runs there and has \
             one_way as this host, and that its packets arrive here"
                .to_owned()
        }
        reason if session.one_way => format!(
            "its keys, one-way by PSK or of a group, were refused ({reason}): compare the pre-shared \
             keys of both hosts, and their public keys with recodectl pubkey"
        ),
        "" => "does not answer: check that recoded runs there, knows this host's public key \
               (recodectl pubkey), and that packets pass in both directions"
            .to_owned(),
        reason => format!(
            "the last handshake was refused ({reason}): compare the keys of both hosts with \
             recodectl pubkey, and their pre-shared keys"
        ),
    };
    Some(Remark::new(&label(session), &words))
}
