//! Who may do what: one table of acts and grants (interfaces §3).

use super::Grants;
use rondo_actors::api::Source;
use rondo_media::ids::{Identity, RoomName};

/// Something that needs a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Publish into a room.
    Publish,
    /// Mute own tracks, change own name and metadata.
    PatchOwn,
    /// Play a room.
    Play,
    /// Say which of a room's tracks are wanted.
    Wish,
    /// Read the events of a room.
    Events,
    /// Read the private events of a session.
    PrivateEvents,
    /// Read one room.
    ReadRoom,
    /// List all rooms.
    ListRooms,
    /// List the sessions of one room, or of all.
    ListSessions,
    /// Read one session.
    ReadSession,
    /// Open a room.
    CreateRoom,
    /// Change a room.
    PatchRoom,
    /// End a room.
    DeleteRoom,
    /// Mute somebody else, change somebody else's name.
    PatchOther,
    /// Remove somebody.
    RemoveSession,
    /// Add ICE candidates to a transport.
    Trickle,
    /// End a transport.
    EndTransport,
    /// Scrape metrics from another machine.
    Metrics,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Somebody without a token, in development mode.
    Guest,
    /// Somebody with a valid token.
    Token(Box<Grants>),
}

impl Caller {
    /// Identity of the token.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Caller::Guest => None,
            Caller::Token(grants) => grants.identity.as_ref(),
        }
    }
    /// Name to show, by the token.
    pub fn name(&self) -> Option<&str> {
        match self {
            Caller::Guest => None,
            Caller::Token(grants) => grants.name.as_deref(),
        }
    }
    /// How others are told who did something to them.
    pub fn told_as(&self) -> String {
        match self {
            Caller::Guest => "a guest".to_owned(),
            Caller::Token(grants) => grants.identity.as_ref().map_or_else(|| grants.key.clone(), Identity::to_string),
        }
    }
    /// Without a token.
    pub fn is_guest(&self) -> bool {
        matches!(self, Caller::Guest)
    }
}

/// What an act is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target<'a> {
    /// The room.
    pub room: Option<&'a RoomName>,
    /// Whose it is; absent where the caller's own is meant.
    pub identity: Option<&'a Identity>,
    /// Made without a token, and the caller has named the transport: its id is told to who made it and to nobody
    /// else, unlike a session's, which everybody in the room reads.
    pub guest_made: bool,
    /// What would be published.
    pub sources: &'a [Source],
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A guest may not; a token could.
    #[error("it needs a token with {0}")]
    NeedsToken(&'static str),
    /// A guest may not do it to this; a token could, and so could who made it without one.
    #[error("it needs a token with {0}, or the id of the transport, where that was made without one (Rondo-Transport)")]
    NeedsTransport(&'static str),
    /// The token does not allow it.
    #[error("the token does not allow it: it needs {0}")]
    NotGranted(&'static str),
    /// The token allows it for another identity only.
    #[error("the token is of another identity (claim sub)")]
    IdentityMismatch,
    /// The token does not allow this source.
    #[error("the token does not allow to publish {} (claim canPublishSources)", .0.label())]
    SourceNotAllowed(Source),
}

/// One condition on a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// `roomJoin` of the target's room.
    Join,
    /// `canPublish`
    Publish,
    /// `canPublishSources` holds all of the target's sources.
    Sources,
    /// `canSubscribe`
    Subscribe,
    /// The target is the caller's own.
    Own,
    /// `roomList`
    List,
    /// `roomCreate`
    Create,
    /// `roomAdmin` of the target's room.
    RoomAdmin,
    /// `rondo.admin`
    Admin,
}

/// What a guest may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// Always.
    May,
    /// Only to what was made without a token, by who knows its transport's id.
    OwnKind,
    /// Never.
    Never,
}

/// One row: what a guest may, and sets of conditions of which a token must meet one.
struct Rule {
    act: Act,
    guest: Guest,
    any_of: &'static [&'static [Need]],
    said: &'static str,
}

const fn rule(act: Act, guest: Guest, any_of: &'static [&'static [Need]], said: &'static str) -> Rule {
    Rule { act, guest, any_of, said }
}

const RULES: [Rule; 18] = {
    use Need::*;
    const JOIN_PUBLISH: &str = "roomJoin and canPublish for this room";
    const JOIN_SUBSCRIBE: &str = "roomJoin and canSubscribe for this room";
    const ROOM_ADMIN: &str = "roomAdmin for this room";
    [
        rule(Act::Publish, Guest::May, &[&[Join, Publish, Own, Sources]], JOIN_PUBLISH),
        rule(Act::PatchOwn, Guest::OwnKind, &[&[Join, Publish, Own]], JOIN_PUBLISH),
        rule(Act::Play, Guest::May, &[&[Join, Subscribe]], JOIN_SUBSCRIBE),
        rule(Act::Wish, Guest::OwnKind, &[&[Join, Subscribe, Own]], JOIN_SUBSCRIBE),
        rule(Act::Events, Guest::May, &[&[Join, Subscribe], &[Admin]], JOIN_SUBSCRIBE),
        rule(Act::PrivateEvents, Guest::OwnKind, &[&[Join, Own]], "roomJoin for this room and this identity"),
        rule(
            Act::ReadRoom,
            Guest::May,
            &[&[Join, Subscribe], &[List], &[RoomAdmin], &[Admin]],
            "roomList, or roomJoin and canSubscribe for this room",
        ),
        rule(Act::ListRooms, Guest::May, &[&[List], &[Admin]], "roomList"),
        rule(Act::ListSessions, Guest::May, &[&[List], &[RoomAdmin], &[Admin]], "roomList, or roomAdmin and ?room="),
        rule(
            Act::ReadSession,
            Guest::May,
            &[&[Join, Own], &[List], &[RoomAdmin], &[Admin]],
            "roomList, or to be of this session",
        ),
        rule(Act::CreateRoom, Guest::Never, &[&[Create], &[Admin]], "roomCreate"),
        rule(
            Act::PatchRoom,
            Guest::Never,
            &[&[RoomAdmin], &[Create], &[Admin]],
            "roomAdmin for this room, or roomCreate",
        ),
        rule(
            Act::DeleteRoom,
            Guest::Never,
            &[&[RoomAdmin], &[Create], &[Admin]],
            "roomAdmin for this room, or roomCreate",
        ),
        rule(Act::PatchOther, Guest::Never, &[&[RoomAdmin], &[Admin]], ROOM_ADMIN),
        rule(Act::RemoveSession, Guest::Never, &[&[RoomAdmin], &[Admin]], ROOM_ADMIN),
        rule(Act::Trickle, Guest::OwnKind, &[&[Join, Own]], "roomJoin for this room and this identity"),
        rule(
            Act::EndTransport,
            Guest::OwnKind,
            &[&[Join, Own], &[RoomAdmin], &[Admin]],
            "roomJoin for this room and this identity, or roomAdmin",
        ),
        rule(Act::Metrics, Guest::Never, &[&[Admin]], "the claim rondo.admin"),
    ]
};

/// Whether `caller` may do `act` to `target`.
///
/// # Errors
/// Why not.
pub fn allowed(act: Act, caller: &Caller, target: &Target<'_>) -> Result<(), Denied> {
    let rule = act.rule();
    let grants = match caller {
        Caller::Guest => {
            return match rule.guest {
                Guest::May => Ok(()),
                Guest::OwnKind if target.guest_made => Ok(()),
                Guest::OwnKind => Err(Denied::NeedsTransport(rule.said)),
                Guest::Never => Err(Denied::NeedsToken(rule.said)),
            };
        }
        // Whoever knows the transport of what was made without a token may change it, with or without a token.
        Caller::Token(_) if rule.guest == Guest::OwnKind && target.guest_made => return Ok(()),
        Caller::Token(grants) => grants,
    };
    if rule.any_of.iter().any(|needs| needs.iter().all(|need| need.met(grants, target))) {
        return Ok(());
    }
    let nearly = rule.any_of.first().copied().unwrap_or_default();
    match nearly.iter().find(|need| !need.met(grants, target)) {
        Some(Need::Own) => Err(Denied::IdentityMismatch),
        Some(Need::Sources) => {
            Err(first_refused(grants, target).map_or_else(|| Denied::NotGranted(rule.said), Denied::SourceNotAllowed))
        }
        _ => Err(Denied::NotGranted(rule.said)),
    }
}

impl Act {
    fn rule(self) -> &'static Rule {
        // The table holds every act: `every_act_has_its_row` fails otherwise, and the last row is the strictest.
        RULES.iter().find(|rule| rule.act == self).unwrap_or(&RULES[RULES.len() - 1])
    }
}

impl Need {
    fn met(self, grants: &Grants, target: &Target<'_>) -> bool {
        let here = target.room.is_some_and(|room| grants.room.as_deref() == Some(room.as_str()));
        match self {
            Need::Join => grants.join && here,
            Need::Publish => grants.publish,
            Need::Sources => first_refused(grants, target).is_none(),
            Need::Subscribe => grants.subscribe,
            Need::Own => target.identity.is_none_or(|identity| grants.identity.as_ref() == Some(identity)),
            Need::List => grants.list,
            Need::Create => grants.create,
            Need::RoomAdmin => grants.room_admin && here,
            Need::Admin => grants.admin,
        }
    }
}

fn first_refused(grants: &Grants, target: &Target<'_>) -> Option<Source> {
    let allowed = grants.sources.as_ref()?;
    target.sources.iter().copied().find(|source| !allowed.contains(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(change: impl FnOnce(&mut Grants)) -> Caller {
        let mut grants = Grants { key: "k".into(), identity: Some("ann".parse().unwrap()), ..Grants::default() };
        (grants.publish, grants.subscribe, grants.room) = (true, true, Some("r".into()));
        change(&mut grants);
        Caller::Token(Box::new(grants))
    }

    /// Columns of the table below. All tokens are of ann; the target is ann's, in room r.
    fn callers() -> Vec<(&'static str, Caller)> {
        vec![
            ("guest", Caller::Guest),
            ("join", token(|g| g.join = true)),
            ("join without publish", token(|g| (g.join, g.publish) = (true, false))),
            ("join without subscribe", token(|g| (g.join, g.subscribe) = (true, false))),
            ("join of another room", token(|g| (g.join, g.room) = (true, Some("q".into())))),
            ("no roomJoin", token(|_| ())),
            ("join as bob", token(|g| (g.join, g.identity) = (true, Some("bob".parse().unwrap())))),
            ("roomList", token(|g| (g.list, g.room) = (true, None))),
            ("roomCreate", token(|g| (g.create, g.room) = (true, None))),
            ("roomAdmin", token(|g| g.room_admin = true)),
            ("roomAdmin of another room", token(|g| (g.room_admin, g.room) = (true, Some("q".into())))),
            ("rondo.admin", token(|g| (g.admin, g.room) = (true, None))),
        ]
    }

    // One mark a caller, in the order above: y may; n 401 or 403; i 403 identity_mismatch; t 401, but may to what was
    // made without a token, naming its transport.
    const EXPECTED: [(Act, &str); 18] = [
        //                       g j p s o n b l c a o A
        (Act::Publish, /*     */ "y y n y n n i n n n n n"),
        (Act::PatchOwn, /*    */ "t y n y n n i n n n n n"),
        (Act::Play, /*        */ "y y y n n n y n n n n n"),
        (Act::Wish, /*        */ "t y y n n n i n n n n n"),
        (Act::Events, /*      */ "y y y n n n y n n n n y"),
        (Act::PrivateEvents, /**/ "t y y y n n i n n n n n"),
        (Act::ReadRoom, /*    */ "y y y n n n y y n y n y"),
        (Act::ListRooms, /*   */ "y n n n n n n y n n n y"),
        (Act::ListSessions, /* */ "y n n n n n n y n y n y"),
        (Act::ReadSession, /* */ "y y y y n n i y n y n y"),
        (Act::CreateRoom, /*  */ "n n n n n n n n y n n y"),
        (Act::PatchRoom, /*   */ "n n n n n n n n y y n y"),
        (Act::DeleteRoom, /*  */ "n n n n n n n n y y n y"),
        (Act::PatchOther, /*  */ "n n n n n n n n n y n y"),
        (Act::RemoveSession, /**/ "n n n n n n n n n y n y"),
        (Act::Trickle, /*     */ "t y y y n n i n n n n n"),
        (Act::EndTransport, /* */ "t y y y n n i n n y n y"),
        (Act::Metrics, /*     */ "n n n n n n n n n n n y"),
    ];

    #[test]
    fn every_cell_of_the_table() {
        let (room, ann) = ("r".parse().unwrap(), "ann".parse().unwrap());
        let target = Target { room: Some(&room), identity: Some(&ann), ..Target::default() };
        for (act, row) in EXPECTED {
            let marks: Vec<&str> = row.split(' ').collect();
            let callers = callers();
            assert_eq!(marks.len(), callers.len());
            for (mark, (name, caller)) in marks.into_iter().zip(callers) {
                let got = match allowed(act, &caller, &target) {
                    Ok(()) => "y",
                    Err(Denied::IdentityMismatch) => "i",
                    Err(Denied::NeedsToken(_)) => {
                        assert!(caller.is_guest());
                        "n"
                    }
                    Err(Denied::NeedsTransport(_)) => {
                        assert!(caller.is_guest());
                        "t"
                    }
                    Err(Denied::NotGranted(_) | Denied::SourceNotAllowed(_)) => {
                        assert!(!caller.is_guest());
                        "n"
                    }
                };
                assert_eq!(got, mark, "{act:?} by {name}");
            }
        }
    }

    #[test]
    fn every_act_has_its_row() {
        for (rule, (act, _)) in RULES.iter().zip(EXPECTED) {
            assert_eq!(rule.act, act);
            assert_eq!(act.rule().act, act);
        }
    }

    #[test]
    fn what_a_guest_made_is_open_to_whoever_knows_its_transport_and_nothing_more() {
        let (room, ann) = ("r".parse().unwrap(), "ann".parse().unwrap());
        let target = Target { room: Some(&room), identity: Some(&ann), guest_made: true, sources: &[] };
        let stranger = token(|g| g.identity = Some("eve".parse().unwrap()));
        for (act, _) in EXPECTED {
            let open = matches!(act, Act::PatchOwn | Act::Wish | Act::PrivateEvents | Act::Trickle | Act::EndTransport);
            let guest_may = open
                || matches!(
                    act,
                    Act::Publish
                        | Act::Play
                        | Act::Events
                        | Act::ReadRoom
                        | Act::ListRooms
                        | Act::ListSessions
                        | Act::ReadSession
                );
            assert_eq!(allowed(act, &Caller::Guest, &target).is_ok(), guest_may, "{act:?} by a guest");
            assert_eq!(allowed(act, &stranger, &target).is_ok(), open, "{act:?} by a token");
        }
    }

    #[test]
    fn sources_are_those_of_the_token() {
        let room = "r".parse().unwrap();
        let publish = |caller: &Caller, sources: &[Source]| {
            allowed(Act::Publish, caller, &Target { room: Some(&room), sources, ..Target::default() })
        };
        let all = token(|g| g.join = true);
        let mic = token(|g| (g.join, g.sources) = (true, Some(vec![Source::Microphone])));
        let none = token(|g| (g.join, g.sources) = (true, Some(vec![])));
        assert!(publish(&all, &[Source::Camera, Source::Microphone]).is_ok());
        assert!(publish(&mic, &[Source::Microphone]).is_ok());
        assert_eq!(publish(&mic, &[Source::Microphone, Source::Camera]), Err(Denied::SourceNotAllowed(Source::Camera)));
        assert_eq!(publish(&none, &[Source::Screen]), Err(Denied::SourceNotAllowed(Source::Screen)));
    }
}
