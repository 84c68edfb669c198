package vfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// each runs a test over every implementation, in a directory that exists.
func each(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Helper()
	t.Run("os", func(t *testing.T) { test(t, vfs.OS{}, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, m.MkdirAll("/data"))
		test(t, m, "/data")
	})
	t.Run("fault", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, m.MkdirAll("data"))
		test(t, vfs.NewFault(m, nil), "data")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.OpenRead(name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(b, 0)
		must(t, err)
	}
	return b
}

func write(t *testing.T, fsys vfs.FS, name, data string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(data), 0)
	must(t, err)
	return f
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		t.Helper()
		a, b := path.Join(dir, "a"), path.Join(dir, "b")
		f := write(t, fsys, a, "hello")
		if _, err := fsys.Create(a); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("second Create: %v", err)
		}
		n, err := f.WritevAt([][]byte{[]byte("xx"), nil, []byte("yyy"), []byte("z")}, 7)
		if n != 6 || err != nil {
			t.Fatal(n, err)
		}
		must(t, f.Sync())
		if got := read(t, fsys, a); string(got) != "hello\x00\x00xxyyyz" {
			t.Fatalf("%q", got)
		}
		must(t, f.Truncate(4))
		must(t, f.Truncate(6))
		if got := read(t, fsys, a); string(got) != "hell\x00\x00" {
			t.Fatalf("%q", got)
		}
		must(t, f.Close())
		must(t, fsys.Rename(a, b))
		if _, err := fsys.Open(a); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("Open of the old name: %v", err)
		}
		if _, err := fsys.Stat(a); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("Stat of the old name: %v", err)
		}
		names, err := fsys.List(dir)
		if err != nil || len(names) != 1 || names[0] != "b" {
			t.Fatal(names, err)
		}
		if size, err := fsys.Stat(b); size != 6 || err != nil {
			t.Fatal(size, err)
		}
		r, err := fsys.OpenRead(b)
		must(t, err)
		if _, err := r.WriteAt([]byte("no"), 0); err == nil {
			t.Fatal("wrote to a file opened for reading")
		}
		must(t, fsys.Remove(b))
		buf := make([]byte, 4)
		if _, err := r.ReadAt(buf, 0); err != nil || string(buf) != "hell" {
			t.Fatalf("a removed file must stay readable: %q %v", buf, err)
		}
		must(t, r.Close())
		if _, err := r.ReadAt(buf, 0); err == nil {
			t.Fatal("read from a closed file")
		}
	})
}

func TestRenameReplaces(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		t.Helper()
		a, b := path.Join(dir, "a"), path.Join(dir, "b")
		must(t, write(t, fsys, a, "new").Close())
		must(t, write(t, fsys, b, "old").Close())
		must(t, fsys.Rename(a, b))
		if got := read(t, fsys, b); string(got) != "new" {
			t.Fatalf("%q", got)
		}
	})
}

// TestWritevManySlices goes over the bound of slices in one system call.
func TestWritevManySlices(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		t.Helper()
		f := write(t, fsys, path.Join(dir, "a"), "ab")
		defer f.Close()
		var bufs [][]byte
		var want bytes.Buffer
		want.WriteString("ab")
		for i := range 3000 {
			b := []byte(strconv.Itoa(i))
			bufs = append(bufs, b)
			want.Write(b)
		}
		n, err := f.WritevAt(bufs, 2)
		if err != nil || n != want.Len()-2 {
			t.Fatal(n, err)
		}
		if !bytes.Equal(read(t, fsys, path.Join(dir, "a")), want.Bytes()) {
			t.Fatal("slices were not written one after the other")
		}
	})
}

func TestMakeDirAndLock(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		t.Helper()
		deep := path.Join(dir, "x/y/z")
		must(t, vfs.MakeDir(fsys, deep))
		must(t, vfs.MakeDir(fsys, deep))
		lock, err := fsys.Lock(path.Join(deep, "LOCK"))
		must(t, err)
		_, err = fsys.Lock(path.Join(deep, "LOCK"))
		if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
			t.Fatalf("second Lock: %v", err)
		}
		must(t, lock.Close())
		lock, err = fsys.Lock(path.Join(deep, "LOCK"))
		must(t, err)
		must(t, lock.Close())
	})
}

func TestMakeDirSurvivesCrash(t *testing.T) {
	m := vfs.NewMem()
	must(t, vfs.MakeDir(m, "/a/b/c"))
	if _, err := m.CrashClone(vfs.CrashOptions{}).List("/a/b/c"); err != nil {
		t.Fatal(err)
	}
	must(t, m.MkdirAll("/d")) // an earlier attempt that ended before its sync
	must(t, vfs.MakeDir(m, "/d"))
	if _, err := m.CrashClone(vfs.CrashOptions{}).List("/d"); err != nil {
		t.Fatal(err)
	}
}

// TestMakeDirForeignParent: a parent that was there and cannot be synced is no obstacle; one that got a new name is.
func TestMakeDirForeignParent(t *testing.T) {
	m := vfs.NewMem()
	must(t, m.MkdirAll("/mnt"))
	for _, cause := range []error{syscall.EACCES, syscall.EINVAL} {
		f := vfs.NewFault(m, func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncDir && op.Path == "/" {
				return cause
			}
			return nil
		})
		must(t, vfs.MakeDir(f, "/mnt/data"))
		if err := vfs.MakeDir(f, "/new/data"); !errors.Is(err, cause) {
			t.Fatal(err)
		}
		must(t, m.Remove("/new/data"))
		must(t, m.Remove("/new"))
	}
}

func TestMemCapacity(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(10)
	f := write(t, m, "a", "12345678")
	n, err := f.WriteAt([]byte("abcd"), 8)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) || !vfs.IsNoSpace(err) {
		t.Fatal(n, err)
	}
	if _, err := f.WriteAt([]byte("over"), 0); err != nil {
		t.Fatalf("overwriting takes no space: %v", err)
	}
	must(t, m.Remove("a"))
	if m.Used() != 0 {
		t.Fatal(m.Used())
	}
}

// TestCrashLosesUnsynced holds what survives a crash that loses everything it may.
func TestCrashLosesUnsynced(t *testing.T) {
	m := vfs.NewMem()
	f := write(t, m, "a", "synced")
	must(t, f.Sync())
	lost := m.CrashClone(vfs.CrashOptions{})
	if _, err := lost.Stat("a"); err == nil {
		t.Fatal("a name survived without SyncDir")
	}
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte("SYNCED and more"), 0)
	must(t, err)
	if got := read(t, m.CrashClone(vfs.CrashOptions{}), "a"); string(got) != "synced" {
		t.Fatalf("%q", got)
	}
	if got := read(t, m.CrashClone(vfs.CrashOptions{Keep: 1}), "a"); string(got) != "SYNCED and more" {
		t.Fatalf("%q", got)
	}
	must(t, m.Rename("a", "b"))
	if names, _ := m.CrashClone(vfs.CrashOptions{}).List("/"); len(names) != 1 || names[0] != "a" {
		t.Fatal(names)
	}
	if names, _ := m.CrashClone(vfs.CrashOptions{Keep: 1}).List("/"); len(names) != 1 || names[0] != "b" {
		t.Fatal(names)
	}
	must(t, m.SyncDir("/"))
	must(t, m.Remove("b"))
	if got := read(t, m.CrashClone(vfs.CrashOptions{}), "b"); string(got) != "synced" {
		t.Fatalf("%q", got)
	}
	if names, _ := m.CrashClone(vfs.CrashOptions{Keep: 1}).List("/"); len(names) != 0 {
		t.Fatal(names)
	}
}

// TestCrashTears shows that over many seeds every outcome of two overlapping writes appears, and none that cannot be.
func TestCrashTears(t *testing.T) {
	m := vfs.NewMem()
	f := write(t, m, "a", "aaaaaaaa")
	must(t, f.Sync())
	must(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte("bbbbbbbb"), 0)
	must(t, err)
	_, err = f.WriteAt([]byte("cccc"), 2)
	must(t, err)
	seen := map[string]bool{}
	for seed := range uint64(400) {
		got := string(read(t, m.CrashClone(vfs.CrashOptions{Seed: seed, Keep: 0.4, Sector: 4}), "a"))
		seen[got] = true
		for i, want := range []map[string]bool{{"aaaa": true, "bbbb": true, "bbcc": true}, {"aaaa": true, "bbbb": true, "ccbb": true}} {
			if part := got[i*4 : i*4+4]; !want[part] {
				t.Fatalf("seed %d: sector %d holds %q", seed, i, part)
			}
		}
	}
	if len(seen) != 9 {
		t.Fatalf("%d of 9 outcomes: %v", len(seen), seen)
	}
	same := func() string {
		return string(read(t, m.CrashClone(vfs.CrashOptions{Seed: 7, Keep: 0.4, Sector: 4}), "a"))
	}
	if first, again := same(), same(); first != again {
		t.Fatal("a seed must give the same crash each time")
	}
}

func TestCrashDirectoryOrder(t *testing.T) {
	m := vfs.NewMem()
	for i := range 4 {
		must(t, write(t, m, strconv.Itoa(i), "").Close())
	}
	unordered := false
	for seed := range uint64(200) {
		names, _ := m.CrashClone(vfs.CrashOptions{Seed: seed, Keep: 0.5, Journal: true}).List("/")
		for i, name := range names {
			if name != strconv.Itoa(i) {
				t.Fatalf("journal lost a change before one that it kept: %v", names)
			}
		}
		names, _ = m.CrashClone(vfs.CrashOptions{Seed: seed, Keep: 0.5}).List("/")
		unordered = unordered || (len(names) > 0 && names[0] != "0")
	}
	if !unordered {
		t.Fatal("without a journal changes must survive in any order")
	}
}

func TestFaultSyncLost(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFault(m, nil)
	file := write(t, f, "a", "old!")
	must(t, file.Sync())
	must(t, f.SyncDir("/"))
	_, err := file.WriteAt([]byte("new!"), 0)
	must(t, err)
	f.SetHook(vfs.FailKind(vfs.ErrSyncLost, vfs.OpSync))
	if err := file.Sync(); !errors.Is(err, vfs.ErrSyncLost) {
		t.Fatal(err)
	}
	f.SetHook(nil)
	must(t, file.Sync())
	if got := read(t, m, "a"); string(got) != "new!" {
		t.Fatalf("%q", got)
	}
	if got := read(t, m.CrashClone(vfs.CrashOptions{Keep: 1}), "a"); string(got) != "old!" {
		t.Fatalf("%q", got)
	}
}

func TestFaultShortWrite(t *testing.T) {
	m := vfs.NewMem()
	f := vfs.NewFault(m, nil)
	file := write(t, f, "a", "........")
	boom := errors.New("boom")
	f.SetHook(vfs.FailKind(&vfs.ShortWriteError{N: 3, Err: boom}, vfs.OpWrite))
	n, err := file.WritevAt([][]byte{[]byte("ab"), []byte("cdef")}, 1)
	if n != 3 || !errors.Is(err, boom) {
		t.Fatal(n, err)
	}
	if got := read(t, m, "a"); string(got) != ".abc...." {
		t.Fatalf("%q", got)
	}
	f.SetHook(vfs.FailAt(f.Ops(), boom))
	if _, err := file.WriteAt([]byte("x"), 0); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestMemAgainstOS does the same random operations on memory and on the disk and compares what is read.
func TestMemAgainstOS(t *testing.T) {
	dir := t.TempDir()
	disk, err := vfs.OS{}.Create(path.Join(dir, "f"))
	must(t, err)
	defer disk.Close()
	mem, err := vfs.NewMem().Create("f")
	must(t, err)
	rnd := rand.New(rand.NewPCG(1, 2))
	for step := range 2000 {
		off := rnd.Int64N(5000)
		data := bytes.Repeat([]byte{byte(step)}, rnd.IntN(300))
		for _, f := range []vfs.File{disk, mem} {
			switch step % 5 {
			case 0:
				err = f.Truncate(off)
			case 1:
				err = f.Sync()
			case 2:
				_, err = f.WritevAt([][]byte{data, {1}, data}, off)
			default:
				_, err = f.WriteAt(data, off)
			}
			must(t, err)
		}
		a, errA := disk.Size()
		b, errB := mem.Size()
		if a != b || errA != nil || errB != nil {
			t.Fatalf("step %d: sizes %d and %d, %v, %v", step, a, b, errA, errB)
		}
		got, want := make([]byte, a), make([]byte, a)
		n, _ := mem.ReadAt(got, 0)
		m, _ := disk.ReadAt(want, 0)
		if n != m || !bytes.Equal(got, want) {
			t.Fatalf("step %d: content differs", step)
		}
	}
}
