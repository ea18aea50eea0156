"""Old operator names in chains become one name with a policy. Idempotent."""
import re,subprocess,os
files=[f for f in subprocess.run(["git","ls-files"],capture_output=True,text=True).stdout.split("\n") if re.search(r"\.(rs|md|stderr|sh)$",f) and os.path.isfile(f) and not f.startswith("CHANGELOG")]
def args_end(t,i):
    """index after the ) that closes the ( at i"""
    d=0; k=i; 
    while k<len(t):
        c=t[k]
        if c=='"':
            k+=1
            while t[k]!='"':
                if t[k]=='\\': k+=1
                k+=1
        elif c in "([{": d+=1
        elif c in ")]}":
            d-=1
            if d==0: return k+1
        k+=1
    raise Exception("unbalanced")
def split_top(s):
    out=[];d=0;cur="";k=0;pipe=False
    while k<len(s):
        c=s[k]
        if c=='"':
            j=k+1
            while s[j]!='"':
                if s[j]=='\\': j+=1
                j+=1
            cur+=s[k:j+1]; k=j+1; continue
        if c in "([{<" and not (c=='<' and s[k+1:k+2] in (' ','=')): d+=1
        if c in ")]}>" and not (c=='>' and s[k-1] in "-= "): d-=1
        if c=='|' and d==0: pipe=not pipe
        if c==',' and d==0 and not pipe: out.append(cur); cur=""
        else: cur+=c
        k+=1
    if cur.strip(): out.append(cur)
    return out
def ensure(t,f):
    if not re.search(r"Verdict::PASS",t): return t
    if re.search(r"(?m)^\s*(pub )?use [^;]*\bVerdict\b",t) or "netbricks::prelude::*" in t or "use super::*" in t: return t
    m=re.search(r"(?m)^((?:\s*//[/!] )?\s*use (?:netbricks_core|netbricks_core::)(?:::)?\{)([^;]*?)\};",t)
    if m:
        items=[x.strip() for x in m.group(2).split(",") if x.strip()]
        pref=""
        if not any(x=="Verdict" for x in items):
            items.append("Verdict")
        low=[x for x in items]
        new=m.group(1)+", ".join(low)+"};"
        return t[:m.start()]+new+t[m.end():]
    print("needs Verdict:",f); return t
for f in files:
    t=open(f).read(); o=t
    t=re.sub(r"\.parse_or_pass::<(\w+(?:<\w+>)?)>\(\)",r".parse::<\1>().or(Verdict::PASS)",t)
    t=re.sub(r"\.filter_or_pass\(",".filter(Verdict::PASS, ",t)
    for name,new in (("parse_or",None),("parse_otherwise",None)):
        while True:
            m=re.search(r"\.%s::<(\w+)>\("%name,t)
            if not m: break
            e=args_end(t,m.end()-1); a=t[m.end():e-1].strip()
            t=t[:m.start()]+".parse::<%s>().or(%s)"%(m.group(1),a)+t[e:]
    while True:
        m=re.search(r"\.resize_or_pass\(",t)
        if not m: break
        e=args_end(t,m.end()-1); t=t[:m.start()]+".resize("+t[m.end():e-1]+").or(Verdict::PASS)"+t[e:]
    for old in ("resize_or_else","filter_or","resize_or"):
        while True:
            m=re.search(r"\.%s\("%old,t)
            if not m: break
            e=args_end(t,m.end()-1); parts=split_top(t[m.end():e-1])
            if old=="filter_or": assert len(parts)==3,(f,parts); r=".filter(%s, %s).on_reject(%s)"%tuple(p.strip() for p in parts)
            elif old=="resize_or": assert len(parts)==2,(f,parts); r=".resize(%s).or(%s)"%(parts[1].strip(),parts[0].strip())
            else: assert len(parts)==2,(f,len(parts),parts); r=".resize(%s).or_else(%s)"%tuple(p.strip() for p in parts)
            t=t[:m.start()]+r+t[e:]
    if t!=o:
        if f.endswith(".rs"): t=ensure(t,f)
        open(f,"w").write(t)
