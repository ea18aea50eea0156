#!/usr/bin/env python3
"""Mechanical renames over the tree in the current folder. usage: rename.py"""
import re, subprocess, os
files = subprocess.run(["git","ls-files"],capture_output=True,text=True).stdout.split("\n")
files=[f for f in files if f and os.path.isfile(f) and re.search(r"\.(rs|md|stderr|sh|toml|py)$|ci/test$|ci/gates$",f) and not f.startswith("CHANGELOG")]
CORE=r"^crates/(core|stream)/"
ALL=r"."
RS=r"\.(rs|stderr)$"
rules=[]
def r(pat,rep,where=RS,flags=0): rules.append((re.compile(pat,flags|re.M),rep,re.compile(where)))

# --- DropReason
r(r"(?<![\w:])Drop(?=::[A-Z]\w)", "DropReason", ALL)
r(r"\b(netbricks_core|reason|crate|prelude|core)::Drop\b(?!\s+for)", r"\1::DropReason", ALL)
r(r"\bDrop as Reason\b","DropReason as Reason")
r(r"(?m)^(\s*(?:pub )?use [^;]*?)\bDrop\b(?=[,}\s;])", r"\1DropReason", ALL)
r(r"^(\s*//[/!] use [^;\n]*?)\bDrop\b(?=[,}\s;])", r"\1DropReason", ALL)
r(r"\[Drop;","[DropReason;",RS)
r(r"pub\(crate\) Drop(?=,)", "pub(crate) DropReason", RS)
r(r"(?<=: )Drop(?=[,)>;\s}])","DropReason")
r(r"(?<=-> )Drop(?=[ ,;{)])","DropReason")
r(r"(?<=[<(, ])Drop(?=[>)])","DropReason")
r(r"(?<=[<(])Drop(?=, \w)","DropReason")
r(r"pub enum Drop \{","pub enum DropReason {")
r(r"impl Drop \{","impl DropReason {")
r(r"(Display|FromStr|From<\w+>|Debug) for Drop \{",r"\1 for DropReason {")
# --- SendTo
OP=r"^crates/(core|stream)/src/(operator\.rs|operators/)"
r(r"\bSend(?=<(?:Self|A)>)","SendTo",OP)
r(r"\bSend(?=\(self, edge\))","SendTo",OP)
r(r"(ResizeError|Parse), Send,",r"\1, SendTo,",OP)
# --- shuffle
r(r"\bKin\b","OwnerTable",CORE); r(r"\bkin\b(?!d)","owner_table",CORE+r".*\.rs$")
r(r"\bFabric\b","ShuffleShared",CORE); r(r"\bfabric\b","shared",CORE+r"src/shuffle/")
r(r"\bStanding\b","WorkerProgress",CORE+r"src/shuffle/"); r(r"(?<=[.(\s|&])standing(?=[.,:;)\[\s|])","progress",CORE+r"src/shuffle/.*")
r(r"\bDuty\b","MigrationRequest",CORE); r(r"\bErrand\b","MigrationTask",CORE); r(r"\berrands\b","tasks",CORE+r"src/graph/"); r(r"\berrand\b","task",CORE+r"src/graph/")
r(r"\bdo_duties\b","run_migrations",RS); r(r"\bDUTY\b","MIGRATION_REQUESTED",CORE); r(r"\bfn duty\b","fn migration_request",CORE); r(r"\.duty\(","._MIGREQ_(",CORE); r(r"\._MIGREQ_\(",".migration_request(",CORE)
r(r"\bmod duty\b","mod migration_request",CORE); r(r"\bduty::","migration_request::",CORE)
r(r"\bmod fabric\b","mod shared",CORE); r(r"\bmod kin\b","mod owner_table",CORE)
r(r"\bCrossing\b","Handoff",CORE); r(r"\bcrossings\b","handoffs",CORE+r"src/"); r(r"\bcrossing\b","handoff",CORE+r"src/"); r(r"\bCROSSED\b","HANDED_OFF",CORE); r(r"\bsettle_crossing\b","settle_handoff",CORE)
r(r"\bas_crossing\b","as_handoff",RS)
# --- handoff counters
HC=r"^crates/(core/src/(context|counters|graph/.*|shuffle/.*)|core/tests/.*|functions/tests/.*|netbricks/(src/(report|bench|commands)/.*|tests/.*)|runtime/.*|ports/.*|testkit/.*)\.?r?s?"
r(r"(?<=[.])handed\b(?!\()","handoff_out",r"^crates/(core/(src/(context|counters|graph|shuffle)|tests/behaviour)|functions/tests|netbricks|runtime|ports|testkit|cli)")
r(r"\bpub(\(crate\))? handed: ",r"pub\1 handoff_out: ",RS); r(r"\bpub(\(crate\))? taken: (?=(Count|u64|crate))",r"pub\1 handoff_in: ",r"^crates/(core/src/(context|counters|graph)|netbricks)")
r(r"^(\s+)handed: (?=Count|counters|self)",r"\1handoff_out: ",r"^crates/(core/src/(context|counters|graph)|netbricks|runtime)")
r(r"^(\s+)taken: (?=Count|counters|self)",r"\1handoff_in: ",r"^crates/(core/src/(context|counters|graph)|netbricks|runtime)")
r(r"(?<=[.])taken\b(?!\()","handoff_in",r"^crates/(core/src/(context|counters|graph/(crossing|handoff|mod|run))|netbricks/src/(report|bench))")
r(r"\bcx\.handed\(","cx.handoff_out(",RS); r(r"\bcx\.taken\(","cx.handoff_in(",RS); r(r"pub fn handed\(","pub fn handoff_out(",CORE+"src/context"); r(r"pub fn taken\(","pub fn handoff_in(",CORE+"src/context")
r(r'"handed"','"handoff_out"',ALL); r(r'"taken"','"handoff_in"',r"cli/tests/command|netbricks/src")
r(r"`handed`","`handoff_out`",ALL); r(r"`taken`","`handoff_in`",ALL)
r(r"\b(totals|report\.totals|summary|node|counters|before|total)\.handed\b",r"\1.handoff_out",RS)
RT=r"^crates/(runtime/(src/(progress|report|runtime)|tests/)|ports/src/node/shared/)"; r(r"\.crossing\(",".handoff(",RS); r(r"fn crossing\(","fn handoff(",RS)
r(r"^(\s+)handed: (AtomicU64|get)",r"\1handoff_out: \2",RT); r(r"^(\s+(?:pub )?)taken: (AtomicU64|get|u64)",r"\1handoff_in: \2",RT); r(r"(?<=[\w)]\.)taken\b(?!\()","handoff_in",RT); r(r'"taken"','"handoff_in"',RT)
# --- shared state handed on
r(r"\bHeritage\b","SharedStateRef",RS); r(r"\bfn heritage\b","fn shared_state",RS); r(r"\.heritage\(",".shared_state(",RS); r(r"::heritage\b","::shared_state",RS); r(r"\bmod heritage\b","mod shared_state",RS); r(r"\buse heritage::","use shared_state::",RS); r(r"\bheritage::","shared_state::",RS); r(r"\bheritage\b","shared",CORE+r"src/.*\.rs$")
r(r"\bmod heirs\b","mod adopt",RS); r(r"\bfn inherit\b","fn adopt",RS); r(r"\.inherit\(",".adopt(",RS); r(r"::inherit\)","::adopt)",RS); r(r"\bfn inherited\b","fn mark_adopted",CORE+"src/consistency"); r(r"\.inherited\(\)",".mark_adopted()",CORE+"src")
# --- worker group
r(r"\bTeam\b","WorkerGroup",RS); r(r"^(pub(\(crate\))? )?mod team;","mod worker_group;",RS); r(r"(?<=use )(crate::)?team::",r"\1worker_group::",RS); r(r"(?<![\w-])team(?=[.,:;)(\s&])","group",r"^crates/(core|runtime|netbricks|testkit|functions|ports)/.*\.rs$")
r(r"\bMeeting\b","SharedSlot",RS); r(r"\.meet\(",".shared(",r"^crates/core/src/"); r(r"pub fn meet<","pub fn shared<",r"team\.rs|worker_group\.rs")
# --- operators
r(r"\bAt\b(?=[<{(,;:}]| \{)","PacketCursor",CORE+r"src/.*\.rs$"); r(r"\bcrate::at::","crate::packet_cursor::",RS); r(r"^mod at;","mod packet_cursor;",CORE)
r(r"\btowers\b","operator chains",RS); r(r"\btower\b(?=[^,.;:)(}\n]* operators)","chain",RS); r(r"(?<=/// )(.*)\btower\b",r"\1operator chain",RS)
r(r"\btower\b","chain",CORE+r"src/.*\.rs$")
r(r"\bUSUAL\b","FAST_PATH",r"^crates/(core|stream|packet)/"); r(r"\bPUTS_OFF\b","MAY_DEFER",CORE); r(r"\bRETRACES\b","REPARSES",CORE)
r(r"(?<![:\w])Own(?=<)","LookupHooks",r"^crates/(core|functions|netbricks|stream)/"); r(r"pub trait Own<","pub trait LookupHooks<",RS); r(r"LookupOr?, Own\}|, Own\};",lambda m:m.group(0).replace("Own","LookupHooks"),r"core/src/operators/mod|core/src/operator"); r(r"\[`Own`\]","[`LookupHooks`]",RS)
r(r"(?<=, )Own(?=,)","LookupHooks",r"^crates/(core/src/(operator\.rs|operators/)|core/tests/behaviour/lookups|functions/src/maglev|netbricks/src/prelude)"); r(r"use netbricks_core::Own;","use netbricks_core::LookupHooks;",RS); r(r"operators::Own;","operators::LookupHooks;",RS); r(r"Lookup, Own\}","Lookup, LookupHooks}",RS)
r(r"\bKnownOr\b","HitOrElse",RS)
# --- tables
TB=r"^crates/(tables|core|functions|netbricks)/.*\.rs$"
r(r"\bfn announce\(announcer\b","fn hash(hasher",TB); r(r"(::)announce\(&?(\w+\.)?announcer",lambda m:m.group(0).replace("announce(","hash("),TB)
r(r"\bfn announce\((?=_?\w+: &(Self::Announcer|\w*Announcer))","fn hash(",r"^crates/(tables|core)/")
r(r"\(Self::announce\)","(Self::hash)",r"^crates/tables/"); r(r"\[`announce`\]\(Self::announce\)","[`hash`](Self::hash)",r"^crates/tables/")
r(r"\b(T|Self|Flows|Table|Routes|Lpm\w*|FlowTable::<[^>]*>)::announce\(",r"\1::hash(",r"^crates/(tables|core/src/operators/look|core/src/stored|core/benches|core/tests|functions|netbricks)")
r(r"\bapproach_all\b","prefetch_all",TB); r(r"\bapproach_missed\b","prefetch_missed",TB); r(r"(?<!cx)\.approach\(",".prefetch(",r"^crates/(tables|core/src/(operators|stored)|core/benches|functions)"); r(r"fn approach\(","fn prefetch(",r"^crates/tables/"); r(r"Self::approach\b(?!::<)","Self::prefetch",r"^crates/tables/"); r(r"\[Approaches\]","[Prefetches]",r"^crates/tables/")
r(r"fn approach<const","fn prefetch<const",r"^crates/core/src/operators/"); r(r"Self::approach::<","Self::prefetch::<",r"^crates/core/src/operators/")
r(r"\bAnnouncer\b","Hasher",r"^crates/(tables|core)/"); r(r"\bFlowAnnouncer\b","FlowHasher",TB); r(r"\bLpmAnnouncer\b","LpmHasher",TB); r(r"\bannouncer\b","hasher",r"^crates/(tables|core/src/(operators|stored)|core/benches|core/tests/behaviour/lookups|functions|netbricks)")
r(r"\bmod approach\b","mod prefetch",r"^crates/tables/"); r(r"\bapproach::Approach\b","prefetch::Prefetch",r"^crates/tables/"); r(r"\bApproach\b","Prefetch",r"^crates/tables/"); r(r"\bapproach\b(?=\.look)","prefetch",r"^crates/tables/"); r(r"let approach\b","let prefetch",r"^crates/tables/")
r(r"\bKeyedTallies\b","KeyedCounterArray",RS); r(r"\bTallies\b","CounterArray",RS); r(r"\bRecent\b","RingLog",r"^crates/(tables|core|functions|netbricks|testkit|stream)/.*\.(rs|stderr)$|^fuzz/"); r(r"\bmod tallies\b","mod counter_array",RS); r(r"\btallies::","counter_array::",RS); r(r"\bmod recent\b","mod ring_log",RS); r(r"\brecent::","ring_log::",RS)
r(r"\bIsland\b","CompressedLeaf",r"^crates/tables/"); r(r"^(\s*//.*?)\bislands\b",r"\1compressed leaves",r"^crates/tables/.*\.rs$"); r(r"^(\s*//.*?)\bislands\b",r"\1compressed leaves",r"^crates/tables/.*\.rs$"); r(r"^(\s*//.*?)\b(an )?island\b(?!\.rs)",lambda m:m.group(1)+("a " if m.group(2) else "")+"compressed leaf",r"^crates/tables/.*\.rs$"); r(r"\bislands\b","leaves",r"^crates/tables/.*\.rs$"); r(r"\bisland\b(?!\.rs|::|;)","leaf",r"^crates/tables/src/lpm/.*\.rs$"); r(r"\blook_for_island\b","look_for_compressed_leaf",r"^crates/tables/"); r(r"\bpainted\b","expanded_cells",r"^crates/tables/"); r(r"\bisland::","compressed_leaf::",r"^crates/tables/"); r(r"\bmod island\b","mod compressed_leaf",r"^crates/tables/"); r(r"\bisland_is_right\b","leaf_is_right",r"^crates/tables/"); r(r"\bpaint(?=[(<])","expand_prefix",r"^crates/tables/")
# --- settings
r(r"\bDoubt\b","ConfigWarning",RS); r(r"\bdoubts\b","warnings",r"^crates/(core|functions|netbricks)/.*\.rs$"); r(r"(?<![:\w])Refused(?= \{ key|, (Registry|Settings|Key)|>|;| \{$)","InvalidSetting",r"^(crates/(functions|ports)/|crates/core/(src/(lib|registry)|tests/behaviour/asked)|crates/netbricks/src/(config|prelude|bench|pipeline)|examples/)")
r(r"(?<=, )Refused(?=[,} ])","InvalidSetting",r"^(crates/(functions|ports)/|crates/core/(src/(lib|registry)|tests/behaviour/asked)|crates/netbricks/src/(config|prelude)|examples/|ARCH|CONTRI)"); r(r"\[`Refused`\]","[`InvalidSetting`]",r"^(crates/core/src/registry|crates/netbricks)"); r(r"use netbricks_core::Refused","use netbricks_core::InvalidSetting",RS); r(r"(?<=pub struct )Refused","InvalidSetting",r"registry\.rs")
# --- run
r(r"\bstirred\b","effects",CORE+"src/(context|graph)"); r(r"\.led\b",".follows_arrivals",CORE); r(r"\bled: (bool|false)",r"follows_arrivals: \1",CORE+"src/context"); r(r"\bself\.dry\b","self.idle_turns",CORE+"src/graph"); r(r"^(\s+)dry: ",r"\1idle_turns: ",CORE+"src/graph")
# --- migration
r(r"\bmod moving;","mod migration;",RS); r(r"\bmoving::(?=[A-Z{a-z])","migration::",r"^crates/(core|stream|functions|netbricks)/.*\.rs$")

r(r"\b(a|A) operator chain",r"\1n operator chain",RS); r(r"\ban task\b","a task",RS); r(r"\b(a|A)n compressed leaf",r"\1 compressed leaf",RS)
r(r"(?<![.\w:])duty\(","migration_request(",r"^crates/core/src/shuffle/"); r(r"(?<![.\w:])inherit\(","adopt(",r"^crates/core/tests/behaviour/"); r(r"\(Self::handed\)","(Self::handoff_out)",RS); r(r"\(Self::taken\)","(Self::handoff_in)",RS); r(r"\[`announce`\]\(Self::hash\)","[`hash`](Self::hash)",RS)
r(r"one of them(.*)of its `owner_table`",r"one of them\1of its `owner_table`",RS)
r(r"`announce`, `approach`","`hash`, `prefetch`",r"tables/src"); r(r"(?<=what )`announce`","`hash`",r"tables/src")
changed=0
for f in files:
    t=open(f,encoding="utf-8").read(); o=t
    for pat,rep,where in rules:
        if where.search(f): t=pat.sub(rep,t)
    if t!=o: open(f,"w",encoding="utf-8").write(t); changed+=1
# --- files
moves={"crates/core/src/shuffle/kin.rs":"owner_table.rs","crates/core/src/shuffle/fabric.rs":"shared.rs","crates/core/src/shuffle/duty.rs":"migration_request.rs","crates/core/src/graph/crossing.rs":"handoff.rs","crates/core/src/consistency/heritage.rs":"shared_state.rs","crates/core/src/graph/heirs.rs":"adopt.rs","crates/core/src/team.rs":"worker_group.rs","crates/core/src/at.rs":"packet_cursor.rs","crates/core/src/consistency/tallies.rs":"counter_array.rs","crates/tables/src/tallies":"counter_array","crates/tables/src/recent.rs":"ring_log.rs","crates/tables/src/flow/approach.rs":"prefetch.rs","crates/tables/src/lpm/island.rs":"compressed_leaf.rs","crates/core/tests/behaviour/heritage.rs":"shared_state.rs"}
names={}
for src,dst in moves.items():
    if os.path.exists(src):
        subprocess.run(["git","mv",src,os.path.join(os.path.dirname(src),dst)],check=True); names[src]=os.path.join(os.path.dirname(src),dst)
for f in files:
    if f.endswith("/moving.rs") and os.path.exists(f):
        d=os.path.join(os.path.dirname(f),"migration.rs"); subprocess.run(["git","mv",f,d],check=True); names[f]=d
for f in files:
    if f.endswith(".md") and os.path.exists(f):
        t=open(f).read(); o=t
        for s,d in names.items():
            b=os.path.basename
            t=t.replace(s,d)
            t=re.sub(r"\[%s\](?=\(%s\))"%(re.escape(b(s)),re.escape(d)),"[%s]"%b(d),t)
        if t!=o: open(f,"w").write(t)
print(changed,"files changed,",len(names),"moved")
