package vfs

import "syscall"

// Free returns how many bytes of dir's file system may still be taken.
func (OS) Free(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, pathErr("statfs", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil //nolint:gosec // bytes of a disk
}
